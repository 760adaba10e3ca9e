--- Names of others for what recipes name by `type`, and what to write for them: of PyTorch, torchvision, Lightning,
-- transformers. They come before the nearest name, which may be another thing: Adam for RAdam, DiT for ViT.
--
--     others.of("optimizers", "AdamW8bit")   --> 'write { type = "AdamW", state_dtype = "8bit" }'
--
-- Only names that no class has (spec/config/other_types_spec.lua). Losses, layers, optimizers, metrics and schedules
-- have those of ganymede.base.other_names, too.
-- @module ganymede.base.other_types
local name_lists = require "ganymede.base.name_lists"
local other_names = require "ganymede.base.other_names"

local others = {}

local all, merged = name_lists.all, name_lists.merged

local function class(name, names) return all(('write { type = "%s" }'):format(name), names) end

local own_transform = "there is none; a function in the list of transforms is one of your own (docs/data.md)"

others.lists = {
  losses = other_names.nn, layers = other_names.nn, lr_schedulers = other_names.lr_scheduler,
  metrics = other_names.metrics,
  optimizers = merged {
    other_names.optim, all('write { type = "AdamW", state_dtype = "8bit" }', "AdamW8bit Adam8bit PagedAdamW8bit"),
    class("AdamW", "adamw_torch adamw_torch_fused adamw_hf DecoupledWeightDecay"),
  },
  models = merged {
    class("VisionTransformer", "ViT vit ViTForImageClassification vit_b_16"),
    class("GPT", "Transformer TransformerDecoder GPT2LMHeadModel"), class("BERT", "TransformerEncoder"),
    class("RoBERTa", "Roberta RobertaForMaskedLM RobertaForSequenceClassification XLMRoberta Camembert"),
    all('write { type = "Pretrained", path = DIR }', "AutoModel AutoModelForCausalLM HuggingFace"),
  },
  datasets = merged {
    all('write { type = "IDX", images = FILE, labels = FILE }', "MNIST KMNIST EMNIST"),
    class("ImageFolder", "ImageNet DatasetFolder"),
    all("write packed = true in the dataset, one of Text, Tokens or Chat", "Packed PackedDataset"),
    all("write the table as CSV, as lines of JSON (JSONL) or as arrays of NumPy (Arrays)",
      "Parquet HuggingFace load_dataset"),
  },
  transforms = merged {
    all("leave it out: pictures become numbers from 0 to 1 by themselves", "ToTensor ToImage PILToTensor ToDtype "
      .. "ConvertImageDtype"),
    all(own_transform, "RandomErasing RandomRotation RandomAffine RandomVerticalFlip GaussianBlur Grayscale "
      .. "RandomGrayscale Pad Lambda"),
    class("RandAugment", "AutoAugment TrivialAugmentWide AugMix"),
  },
  hooks = merged {
    all("write checkpoint = { interval = STEPS } among the settings", "ModelCheckpoint ModelCheckpointHook"),
    class("EMA", "EMAHook ModelEMA EMACallback WeightAveraging"), class("EvaluationHook", "EvalHook"),
    class("TensorBoardHook", "WandbLogger MLflowLogger"),
  },
}

--- Returns what to write in place of a name that no class of this kind has; nil: it is no name of others.
-- kind: of a registry, or nil.
function others.of(kind, name)
  local list = others.lists[kind or ""]
  return list and list[name]
end

return others
