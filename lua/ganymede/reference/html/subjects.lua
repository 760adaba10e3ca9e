--- The pages of the reference: which entries stand on which.
-- @module ganymede.reference.html.subjects
local subjects = {}

--- In the order of the navigation: file, title, one sentence, and sections, each a title and a test of entries.
subjects.list = {
  { "ops", "Ops", "Differentiable functions of tensors.", { { "Ops", { kind = "op" } } } },
  { "tensors", "Tensors", "How tensors are made and held, and their methods.", {
    { "Making and holding tensors", { group = "gm", file = "tensor" } }, { "Methods", { kind = "method" } } } },
  { "nn", "Layers and losses", "What models are made of.", {
    { "Layers", { kind = "layer", plain = true } }, { "Losses", { kind = "loss", plain = true } },
    { "Initial values", { kind = "initializer" } }, { "Routers of experts", { kind = "router" } },
    { "Functions", { group = "nn" } }, { "Functions of initial values", { group = "nn.init" } },
    { "Methods of layers and models", { group = "module" } }, { "Methods of lists", { group = "list" } },
    { "Layers of one tensor mode", { kind = "layer", variant = true } },
    { "Losses of one tensor mode", { kind = "loss", variant = true } } } },
  { "models", "Models", "Networks that are there.", { { "Models", { kind = "model" } } } },
  { "data", "Data", "Datasets, transforms, samplers, loaders.", {
    { "Datasets", { kind = "dataset" } }, { "Transforms", { kind = "transform" } },
    { "Samplers", { kind = "sampler" } },
    { "Functions", { group = "data" } }, { "Methods of loaders", { group = "loader" } },
    { "Methods of datasets", { group = "dataset" } } } },
  { "optim", "Optimizers", "Updates of parameters, and the learning rate.", {
    { "Optimizers", { kind = "optimizer" } }, { "Learning-rate schedules", { kind = "lr_scheduler" } },
    { "Functions", { group = "optim" } }, { "Functions of schedules", { group = "lr_scheduler" } },
    { "Methods of optimizers", { group = "optimizer" } }, { "Methods of schedules", { group = "scheduler" } } } },
  { "training", "Training in code", "Engines, trainers, and what they measure.", {
    { "Functions", { group = "gm" } }, { "Methods of engines", { group = "engine" } },
    { "Methods of trainers", { group = "trainer" } }, { "Checkpoints", { group = "checkpoint" } },
    { "Metrics", { kind = "metric" } }, { "Functions of metrics", { group = "metrics" } },
    { "Methods of metrics", { group = "metric" } }, { "Traces", { group = "trace" } },
    { "Profiles", { group = "profile" } }, { "Energy", { group = "energy" } }, { "JSON", { group = "json" } } } },
  { "hooks", "Hooks", "What happens beside the arithmetic of training.", {
    { "Hooks", { kind = "hook" } }, { "Functions", { group = "hooks" } } } },
  { "schedules", "Schedules and modes", "Orders of a pipeline, tensor parallelism, gradient handlers.", {
    { "Schedules", { kind = "schedule" } }, { "Orders of a pipeline", { kind = "order" } },
    { "Modes of tensor parallelism", { kind = "tensor_mode" } },
    { "Gradient handlers", { kind = "gradient_handler" } } } },
  { "communication", "Communication", "Collectives between ranks, and who is where.", {
    { "Functions", { group = "comm" } }, { "The parallel context", { group = "gpc" } } } },
  { "settings", "Settings", "The keys of a recipe.", { { "Settings", { kind = "setting" } } } },
  { "verbs", "Command line", "Verbs, and variables of the environment.", {
    { "Verbs", { kind = "verb" } }, { "Variables", { kind = "variable" } } } },
  { "modules", "Modules", "The tables of gm, and the registries.", {
    { "Modules", { kind = "module" } }, { "Functions of registries", { group = "registry" } } } },
}

local function fits(entry, test)
  if test.kind and entry.kind ~= test.kind then return false end
  if test.group and entry.group ~= test.group then return false end
  if test.plain and entry.variant then return false end
  if test.variant and not entry.variant then return false end
  return not test.file or entry.of == test.file
end

--- Pages of entries: list of { file, title, sentence, sections = list of { title, entries } }. An entry stands on the
-- first that fits; one that fits nowhere is an error.
function subjects.pages(entries)
  local pages, taken = {}, {}
  for i, subject in ipairs(subjects.list) do
    local page = { file = ("reference_%s.html"):format(subject[1]), title = subject[2], sentence = subject[3],
      sections = {} }
    for _, section in ipairs(subject[4]) do
      local list = {}
      for _, entry in ipairs(entries) do
        if not taken[entry] and fits(entry, section[2]) then
          taken[entry], list[#list + 1], entry.page = true, entry, page.file
        end
      end
      if #list > 0 then page.sections[#page.sections + 1] = { title = section[1], entries = list } end
    end
    pages[i] = page
  end
  for _, entry in ipairs(entries) do
    if not taken[entry] then error("no page of the reference has " .. entry.name, 0) end
  end
  return pages
end

return subjects
