"""A memory queue: small batches are contrasted with the embeddings of earlier batches, as in MoCo.

A batch of 32 digits has few positives and negatives; 512 keys of a slowly moving copy of the network add many.
(Not called queue.py, which would hide Python's own module of that name.)

pip install '.[all]'
"""

import copy

import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from torch import nn
from torch.nn.functional import normalize

from sincere import MemoryQueue, sincere_loss

torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = (torch.tensor(values) for values in load_digits(return_X_y=True))
images = images.float() / 16
train, test = torch.randperm(len(images)).split([1200, len(images) - 1200])

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))
teacher = copy.deepcopy(model).requires_grad_(False)
queue = MemoryQueue(size=512, dim=32)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


@torch.no_grad()
def accuracy() -> float:
    """Return the 1-NN accuracy on the test images."""
    embeddings = normalize(model(images), dim=1)
    nearest = KNeighborsClassifier(1).fit(embeddings[train], labels[train])
    return float(nearest.score(embeddings[test], labels[test]))


print(f"before: 1-NN accuracy {accuracy():.3f}")
for _epoch in range(10):
    for batch in train[torch.randperm(len(train))].split(32):
        for own, moving in zip(teacher.parameters(), model.parameters(), strict=True):
            own.lerp_(moving.detach(), 0.01)  # the teacher follows the model
        # The queue holds the teacher's embedding of each anchor itself, which anchor_index leaves out.
        itself = queue.enqueue(teacher(images[batch]), labels[batch])
        keys, key_labels = queue.filled()
        loss = sincere_loss(model(images[batch]), labels[batch], keys=keys, key_labels=key_labels, anchor_index=itself)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"after: 1-NN accuracy {accuracy():.3f}, loss {loss.item():.3f}")
