--- The setting `adaptive_batch` of a recipe: its keys, what is wrong with one, and the rules for the learning rate.
--
--     adaptive_batch = { largest = 512, rate = "adascale" }      -- batches from data.batch_size to 512 samples
--
-- `ganymede cluster` and `ganymede resize --batch` then may change data.batch_size while the run goes on
-- (ganymede.train.adaptive_batch). A batch that is `scale` times the first one multiplies the learning rate by
--
--     linear     scale                                  Goyal et al. 2017
--     sqrt       the square root of scale               Krizhevsky 2014; for Adam and its kind
--     adascale   (var + sqr) / (var / scale + sqr)      Johnson et al. 2020, as Pollux uses it
--
-- where sqr and var are the squared norm of the true gradient and the variance of that of the first batch.
-- @module ganymede.config.batch_setting
local setting = {}

setting.fields = {
  largest = { type = "integer", min = 1, max = 2 ^ 31,
    doc = "the most samples of a batch, over all ranks; the least are data.batch_size" },
  rate = { type = "string", one_of = { "adascale", "linear", "sqrt" }, default = "adascale",
    doc = "how the learning rate follows the batch: as much as the measured noise of the gradient says, as the batch, "
      .. "or as its square root" },
  every = { type = "integer", min = 1, max = 2 ^ 31, default = 10,
    doc = "the number of steps between two measurements of the noise, where no hook GradientNoise says it" },
}

local rules = {}
function rules.linear(scale) return scale end
function rules.sqrt(scale) return math.sqrt(scale) end
function rules.adascale(scale, noise, first)
  local sqr, var = math.max(noise.square, 0), math.max(noise.variance, 0) / first
  local rest = var / scale + sqr
  return rest > 0 and (var + sqr) / rest or 1
end

--- By what the learning rate is multiplied with a batch of so many times the first one, whose samples are `first`.
-- noise: { square, variance (of the gradient of one sample) }, which only adascale uses.
function setting.factor(rule, scale, noise, first) return rules[rule](scale, noise, first) end

--- Why batches that may change do not go with drop_last.
setting.drop_last = "does not go with drop_last: how many samples an epoch leaves out would follow the batch"

-- Settings that count steps or fix the batch -> what would become of them.
local fixed = {
  { "lr_scheduler", "counts steps, and there are fewer of them with larger batches; leave one of both out" },
  { "steps", "ends the run after a number of steps, whose samples nobody would know; give epochs" },
}

--- What is wrong with a value of `adaptive_batch`, or nil.
function setting.problem(value, whole)
  for _, entry in ipairs(fixed) do
    if whole[entry[1]] ~= nil then return ("does not go with %s, which %s"):format(unpack(entry)) end
  end
  local data = whole.data or {}
  if data.drop_last then return setting.drop_last end
  local first = data.batch_size or 32
  if value.largest and value.largest < first then
    return ("has largest = %d, less than data.batch_size = %d"):format(value.largest, first)
  end
end

return setting
