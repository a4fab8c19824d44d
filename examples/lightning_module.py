"""Train a convolutional network on handwritten digits with Lightning and SINCERE, and watch its k-NN accuracy.

pip install '.[lightning]' scikit-learn

The digits are at random positions of a canvas, which nearest neighbours of pixels cannot handle. Each image has two
views at two positions, and `LiveKNN` measures the accuracy of held-out images after every epoch.
"""

import logging
from functools import partial

import torch
from lightning.pytorch import Trainer, seed_everything
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.optim import AdamW
from torch.utils.data import DataLoader, TensorDataset

from sincere.integrations.lightning import ContrastiveModule, LiveKNN


def placed(image: Tensor) -> Tensor:
    """Return an image (1, 8, 8) at a random position of a canvas (1, 12, 12)."""
    top, left = torch.randint(5, (2,)).tolist()
    return pad(image, (left, 4 - left, top, 4 - top))


def two_views(items: list[tuple[Tensor, Tensor]]) -> tuple[list[Tensor], Tensor]:
    """Return a batch of two views of each image, and the labels."""
    views = [torch.stack([placed(image) for image, _ in items]) for _ in range(2)]
    return views, torch.stack([label for _, label in items])


logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
seed_everything(0, verbose=False)
images, labels = load_digits(return_X_y=True)
images, labels = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
train_x, test_x, train_y, test_y = train_test_split(images, labels, test_size=0.5, random_state=0)
references = TensorDataset(torch.stack([placed(image) for image in train_x]), train_y)
queries = TensorDataset(torch.stack([placed(image) for image in test_x]), test_y)

network = nn.Sequential(
    nn.Conv2d(1, 32, kernel_size=5, padding=2),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 64, kernel_size=3),
    nn.ReLU(),
    nn.AdaptiveMaxPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 32),
)
module = ContrastiveModule(network, "sincere", temperature=0.1, optimizer=partial(AdamW, lr=3e-3))
knn = LiveKNN(DataLoader(references, batch_size=512), DataLoader(queries, batch_size=512), k=5)
trainer = Trainer(
    max_epochs=8,
    accelerator="cpu",
    callbacks=[knn],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    log_every_n_steps=1,
)
train = TensorDataset(train_x, train_y)
loader = DataLoader(train, batch_size=128, shuffle=True, collate_fn=two_views)
trainer.fit(module, loader, DataLoader(queries, batch_size=512))
for epochs, accuracy in knn.history:
    print(f"{f'after {epochs} epochs' if epochs else 'before'}: 5-NN accuracy {accuracy:.1%}")
