"""The loss in a training loop of your own: a small network learns scikit-learn's digits in a few seconds.

pip install '.[all]'
python examples/own_loop.py
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from torch import nn
from torch.nn.functional import normalize

from sincere import SINCERELoss  # or SupConLoss, EpsSupInfoNCELoss: they take the same arguments

torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = load_digits(return_X_y=True)
images, test_images, labels, test_labels = train_test_split(images, labels, random_state=0, stratify=labels)
images, test_images = torch.tensor(images).float() / 16, torch.tensor(test_images).float() / 16
labels = torch.tensor(labels)

model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))
criterion = SINCERELoss(temperature=0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


@torch.no_grad()
def margin() -> float:
    """Return the median similarity to the nearest image of the same class minus that to the nearest of another."""
    train, test = (normalize(model(x), dim=1) for x in (images, test_images))
    similarity, same = test @ train.T, torch.tensor(test_labels)[:, None] == labels
    positive, negative = (similarity.masked_fill(~mask, -2).amax(dim=1).median() for mask in (same, ~same))
    return float(positive - negative)


@torch.no_grad()
def accuracy() -> float:
    """Return the 1-NN accuracy on the test images."""
    train, test = (normalize(model(x), dim=1).numpy() for x in (images, test_images))
    return float(KNeighborsClassifier(1).fit(train, labels.numpy()).score(test, test_labels))


print(f"before: margin {margin():.3f}, 1-NN accuracy {accuracy():.3f}")
for epoch in range(30):
    for batch in torch.randperm(len(images)).split(256):
        noisy = images[batch] + 0.1 * torch.randn_like(images[batch])  # your augmentation
        loss = criterion(model(noisy), labels[batch])  # embeddings (n, d) of any length, labels (n,)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 10 == 9:
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")
print(f"after: margin {margin():.3f}, 1-NN accuracy {accuracy():.3f}")
