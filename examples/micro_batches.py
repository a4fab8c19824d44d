"""A batch larger than memory: contrastive losses need the whole batch at once, the network does not.

`cached_backward` embeds the batch in micro-batches without a graph, takes the gradient of the loss with respect to the
embeddings, and embeds the micro-batches again, each with its part of that gradient (Gao et al. 2021,
https://arxiv.org/abs/2101.06983). The gradient is that of the whole batch, and only one micro-batch has a graph at any
time. `sincere train --micro-batch 64` does this for you.

pip install '.[all]'
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from sincere import SINCERELoss, cached_backward

torch.manual_seed(0)
torch.set_num_threads(1)
images, labels = (torch.tensor(values) for values in load_digits(return_X_y=True))
images = images.float() / 16
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 32))
criterion = SINCERELoss(temperature=0.1)


def loss(embeddings: Tensor) -> Tensor:
    """Return the loss of the whole batch."""
    return criterion(embeddings, labels)


loss(model(images)).backward()
whole = [parameter.grad.clone() for parameter in model.parameters()]
model.zero_grad()
cached_backward(model, images, loss, micro_batch=64)
pairs = zip(whole, (parameter.grad for parameter in model.parameters()), strict=True)
difference = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
print(f"largest relative difference from the gradient of the whole batch of {len(images):,}: {difference:.1e}")
assert difference < 1e-4

optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    optimizer.zero_grad()
    value = cached_backward(model, images, loss, micro_batch=64)
    optimizer.step()
    if step % 19 == 0:
        print(f"step {step + 1}: loss {value.item():.3f}")
