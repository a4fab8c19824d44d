"""Supervised contrastive losses. Import them from `sincere`; `sincere.loss_catalog.LOSSES` lists them."""
