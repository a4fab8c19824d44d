"""A batch larger than memory: contrastive losses need the whole batch at once, the network does not.

Embed the batch in micro-batches without a graph, take the gradient of the loss with respect to the embeddings, and
embed the micro-batches again, each with its part of that gradient (Gao et al. 2021, https://arxiv.org/abs/2101.06983).
The gradient is that of the whole batch, and only one micro-batch has a graph at any time. `sincere train --micro-batch
64` does this for you. Layers that mix rows or draw random numbers, such as batch norm and dropout, would have to
compute the same in both passes.

pip install 'sincere[all]'
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from sincere import SINCERELoss

torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = (torch.tensor(values) for values in load_digits(return_X_y=True))
images = images.float() / 16
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))
criterion = SINCERELoss(temperature=0.1)


def backward_in_micro_batches(inputs: Tensor, targets: Tensor, size: int) -> Tensor:
    """Add the gradient of the whole batch to the weights, and return its loss."""
    with torch.no_grad():
        embeddings = torch.cat([model(piece) for piece in inputs.split(size)])
    embeddings.requires_grad_()
    loss = criterion(embeddings, targets)
    loss.backward()
    for piece, gradient in zip(inputs.split(size), embeddings.grad.split(size), strict=True):
        model(piece).backward(gradient)
    return loss.detach()


criterion(model(images), labels).backward()
whole = [parameter.grad.clone() for parameter in model.parameters()]
model.zero_grad()
backward_in_micro_batches(images, labels, size=64)
pairs = zip(whole, (parameter.grad for parameter in model.parameters()), strict=True)
difference = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
print(f"largest relative difference from the gradient of the whole batch of {len(images):,}: {difference:.1e}")
assert difference < 1e-4

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    optimizer.zero_grad()
    loss = backward_in_micro_batches(images, labels, size=64)
    optimizer.step()
    if step % 19 == 0:
        print(f"step {step + 1}: loss {loss.item():.3f}")
