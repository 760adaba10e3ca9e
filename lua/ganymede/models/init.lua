--- The list of models. To add one, put its file into this folder and add a line here.
--
--     local model = gm.models.GPT { vocabulary = 256, sequence_length = 128, width = 64, depth = 4, heads = 4 }
--     model = { type = "GPT", vocabulary = 256, ... }                    -- the same, in a recipe's table
--
-- Each class is registered in gm.registry.models and describes its options (`gm.models.GPT.options`).
-- @module ganymede.models
local missing = require "ganymede.base.missing"

return missing.guard("models", {
  MLP = require "ganymede.models.mlp",
  VisionTransformer = require "ganymede.models.vision_transformer",
  ResNet = require "ganymede.models.resnet",
  VGG = require "ganymede.models.vgg",
  ConvNeXt = require "ganymede.models.convnext",
  MLPMixer = require "ganymede.models.mlp_mixer",
  Swin = require "ganymede.models.swin",
  UNet = require "ganymede.models.unet",
  SegmentationUNet = require "ganymede.models.segmentation_unet",
  AutoencoderKL = require "ganymede.models.autoencoder",
  Diffusion = require "ganymede.models.diffusion",
  DiT = require "ganymede.models.dit",
  GPT = require "ganymede.models.gpt",
  Llama = require "ganymede.models.llama",
  BERT = require "ganymede.models.bert",
  RoBERTa = require "ganymede.models.roberta",
  DLRM = require "ganymede.models.dlrm",
})
