"""A memory queue: small batches are contrasted with the embeddings of earlier batches, as in MoCo.

A batch of 32 digits has few positives and negatives; 512 keys of a slowly moving copy of the network add many.
(Not called queue.py, which would hide Python's own module of that name.)

pip install 'sincere[all]'
"""

import copy

import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from torch import nn
from torch.nn.functional import normalize

from sincere import sincere_loss

torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = (torch.tensor(values) for values in load_digits(return_X_y=True))
images = images.float() / 16
train, test = torch.randperm(len(images)).split([1200, len(images) - 1200])

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))
teacher = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
keys = torch.zeros(512, 32)  # a ring buffer
key_labels = torch.full((512,), -1)
position, filled = 0, 0


@torch.no_grad()
def accuracy() -> float:
    """Return the 1-NN accuracy on the test images."""
    embeddings = normalize(model(images), dim=1)
    nearest = KNeighborsClassifier(1).fit(embeddings[train], labels[train])
    return float(nearest.score(embeddings[test], labels[test]))


print(f"before: 1-NN accuracy {accuracy():.3f}")
for _epoch in range(10):
    for batch in train[torch.randperm(len(train))].split(32):
        with torch.no_grad():  # the teacher follows the model; its embeddings of this batch enter the queue
            for own, moving in zip(teacher.parameters(), model.parameters(), strict=True):
                own.lerp_(moving, 0.01)
            slots = (position + torch.arange(len(batch))) % len(keys)
            keys[slots], key_labels[slots] = teacher(images[batch]), labels[batch]
            position, filled = (position + len(batch)) % len(keys), min(filled + len(batch), len(keys))
        # The queue holds the teacher's embedding of each anchor itself, which anchor_index leaves out.
        loss = sincere_loss(
            model(images[batch]), labels[batch], keys=keys[:filled], key_labels=key_labels[:filled], anchor_index=slots
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"after: 1-NN accuracy {accuracy():.3f}, loss {loss.item():.3f}")
