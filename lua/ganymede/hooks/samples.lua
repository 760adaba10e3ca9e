--- SampleHook draws images by a diffusion model at each evaluation, and writes them as samples-STEP.png into the run's
-- folder; `measure` may make a metric of them.
--
-- If the hook EMA comes with it, the averages draw, as evaluations use them. Every rank draws all images (the model may
-- be cut over ranks); rank 0 writes.
-- @module ganymede.hooks.samples
local base = require "ganymede.hooks.base"
local checked = require "ganymede.data.failing"
local core = require "ganymede.core"
local data = require "ganymede.data"
local options = require "ganymede.base.options"
local sampler = require "ganymede.nn.diffusion_sampler"
local tensors = require "ganymede.tensor"
local write = require "ganymede.hub.write"

local SampleHook = base.class("SampleHook", {
  shape = { type = "list", doc = "the shape of an image that is drawn, { channels, height, width }; of a latent one "
    .. "where the model has an autoencoder" },
  count = { type = "integer", min = 1, max = 2 ^ 20, default = 64, doc = "how many images are drawn" },
  shown = { type = "integer", min = 1, max = 4096, default = 64, doc = "how many of them the picture shows, at most" },
  columns = { type = "integer", min = 1, max = 256, default = 8, doc = "how many stand beside each other" },
  size = { type = "integer", min = 8, max = 1024, default = 56,
    doc = "the side of an image in the picture, in pixels" },
  sampler = { type = "string", one_of = sampler.options.sampler.one_of, default = "dpm",
    doc = sampler.options.sampler.doc },
  steps = { type = "integer", min = 1, default = 20, doc = sampler.options.steps.doc:match "^(.-);" },
  seed = sampler.options.seed, clip = sampler.options.clip,
  guidance = { type = "number", min = 0, default = 1, doc = "how far predictions go towards those of the class" },
  measure = { type = "function", optional = true, doc = "a function(images, trainer) that returns a table of numbers, "
    .. "which become metrics of the test" },
  directory = { type = "string", optional = true, doc = "the folder of the pictures; default: the run's folder" },
}, { priority = 9, needs_output = false, needs_loss = false, saves = true }) -- before EMA takes the averages back

function SampleHook.build(_, opt)
  local right = #opt.shape == 3
  for _, n in ipairs(opt.shape) do right = right and type(n) == "number" and n >= 1 and n % 1 == 0 end
  if not right then
    error(("SampleHook: shape is { channels, height, width }, whole numbers; got %s"):format(
      options.literal(opt.shape)), 0)
  end
end

--- Only `measure` itself knows its names.
function SampleHook:measures()
  if self.opt.measure then return nil end
  return {}
end

-- What would otherwise end the run at its first evaluation.
local function check(opt, model)
  local denoiser, drawn = model.denoiser.opt, model.autoencoder and model.autoencoder.opt.channels or opt.shape[1]
  if denoiser.channels and denoiser.channels ~= opt.shape[1] then
    error(("SampleHook: shape has %d channels, and %s %d"):format(opt.shape[1], model.denoiser.name,
      denoiser.channels), 0)
  elseif drawn and drawn ~= 1 and drawn ~= 3 then
    error(("SampleHook: pictures have 1 or 3 channels, not %d"):format(drawn), 0)
  elseif denoiser.context then
    error("SampleHook: the denoiser needs a context, and the hook has none; call model:sample in a hook of yours", 0)
  elseif opt.guidance ~= 1 and (not denoiser.classes or model.opt.drop == 0) then
    error("SampleHook: guidance needs a model of classes that was trained with drop above 0", 0)
  end
  sampler.check(model.process, opt, 0)
end

function SampleHook:after_hook_is_attached(trainer)
  local engine = trainer.engine
  if engine.stage.stages > 1 then
    error("SampleHook: a model that is cut into stages cannot draw; draw from its checkpoint without stages", 0)
  end
  if type(engine.model.sample) ~= "function" then
    error(("SampleHook: %s has no method sample; it is for models.Diffusion"):format(engine.model.name), 0)
  end
  check(self.opt, engine.model)
end

-- Classes one after the other, row by row; nil: the model has none.
local function classes_of(model, count)
  local classes = model.denoiser.opt.classes
  if not classes then return nil end
  local known, list = model.opt.drop > 0 and classes - 1 or classes, {}
  for i = 1, count do list[i] = (i - 1) % known end
  return core.tensor(list, "i64", { count })
end

local function draw(self, model)
  local opt, shape = self.opt, { self.opt.count }
  for _, n in ipairs(opt.shape) do shape[#shape + 1] = n end
  return model:sample { shape = shape, sampler = opt.sampler, steps = opt.steps, seed = opt.seed, clip = opt.clip,
    guidance = opt.guidance, condition = classes_of(model, opt.count) }
end

-- Images go through a file of arrays, which the writer of contact sheets reads.
local function picture(self, images, path)
  local arrays = path .. ".safetensors"
  write.save(arrays, { { "images", images } })
  if core.rank() > 0 then return end
  local dataset, list = data.Arrays { x = arrays .. ":images" }, {}
  for i = 1, math.min(self.opt.shown, self.opt.count) do list[i] = i - 1 end
  local ok, err = pcall(function()
    checked(nil, core.image_sheet(path, dataset.handle, list, { columns = self.opt.columns, size = self.opt.size }))
  end)
  os.remove(arrays)
  if not ok then error(err, 0) end
end

function SampleHook:after_test(trainer)
  local folder = base.folder(self, trainer)
  tensors.scope(function()
    local images = draw(self, trainer.engine.model)
    core.make_folders(folder)
    picture(self, images, ("%s/samples-%08d.png"):format(folder, trainer.step))
    for name, value in pairs(self.opt.measure and self.opt.measure(images, trainer) or {}) do
      trainer.metrics.test[name] = value
    end
  end)
end

return SampleHook
