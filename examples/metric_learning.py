"""Train with the trainer, the memory and the tester of pytorch-metric-learning, with SINCERE as the loss.

pip install '.[metric-learning]' scikit-learn

`CrossBatchMemory` contrasts each batch of handwritten digits with the embeddings of earlier ones. The tester computes
the mean average precision at R: how far up in the list of its neighbours the images of its class are.
"""

import logging

import numpy as np
import torch
from pytorch_metric_learning.samplers import MPerClassSampler
from pytorch_metric_learning.testers import GlobalEmbeddingSpaceTester
from pytorch_metric_learning.trainers import MetricLossOnly
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import TensorDataset

from sincere.integrations.metric_learning import ContrastiveMetricLoss, CrossBatchMemory

logging.getLogger("PML").setLevel(logging.WARNING)
torch.manual_seed(0)
np.random.seed(0)  # of the library's sampler
images, labels = load_digits(return_X_y=True)
images, labels = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
train_x, test_x, train_y, test_y = train_test_split(images, labels, test_size=0.3, random_state=0)
train, test = TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)

trunk, embedder = nn.Sequential(nn.Linear(64, 128), nn.ReLU()), nn.Linear(128, 32)
models = {"trunk": trunk, "embedder": embedder}
loss = CrossBatchMemory(ContrastiveMetricLoss("sincere", temperature=0.1), embedding_size=32, memory_size=512)
calculator = AccuracyCalculator(include=("mean_average_precision_at_r",), k="max_bin_count")
tester = GlobalEmbeddingSpaceTester(
    batch_size=512, dataloader_num_workers=0, data_device="cpu", accuracy_calculator=calculator
)
trainer = MetricLossOnly(
    models=models,
    optimizers={f"{name}_optimizer": torch.optim.AdamW(model.parameters(), lr=2e-3) for name, model in models.items()},
    batch_size=64,
    loss_funcs={"metric_loss": loss},
    dataset=train,
    sampler=MPerClassSampler(train_y, m=8, length_before_new_iter=len(train)),
    dataloader_num_workers=0,
    data_device="cpu",
)


def report(moment: str) -> None:
    """Print how well the neighbours of each test image among the other test images fit its class."""
    result = tester.test({"test": test}, epoch=0, trunk_model=trunk, embedder_model=embedder)
    print(f"{moment}: mean average precision at R {result['test']['mean_average_precision_at_r_level0']:.3f}")


report("before")
trainer.train(num_epochs=5)
report("after")
