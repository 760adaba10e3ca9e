-- Transforms that users write in C (host/data/transform_kernel.h): what a kernel gets and gives, its random numbers, on
-- any threads and ranks; kernels that fail name the sample and its file; what is no kernel is refused.
-- ranks: 1 2
--
-- The kernels are compiled here, by cc, into a folder of this rank. Pictures are made by spec/data/pictures.lua, so
-- each pixel is known by a formula.
-- luacheck: globals finally pending
-- sanitizers: at most 1 rank, more of them run the same lines of C
local both = require "spec.layout.both_ways"
local core = require "ganymede.core"
local data = require "ganymede.data"
local failure = require "ganymede.base.failure"
local ffi = require "ffi"
local gm = require "ganymede"
local pictures = require "spec.data.pictures"
local shell = require "spec.support.shell"

local SOURCE = [[
#include <stdio.h>
#include <stdlib.h>
#include "transform_kernel.h"

static int invert(const gm_kernel_call *c)
{
    for (int64_t i = 0; i < gm_kernel_elements(c); i++)
        ((uint8_t *)c->out)[i] = (uint8_t)(255 - ((const uint8_t *)c->in)[i]);
    return c->dtype != GM_KERNEL_U8;
}
GM_TRANSFORM_KERNEL(inverted, invert)

static int mix(const gm_kernel_call *c)
{
    for (int64_t i = 0; i < gm_kernel_elements(c); i++)
        ((double *)c->out)[i] = c->parameters[0] * ((const double *)c->in)[i] + gm_kernel_uniform(c, (uint64_t)i);
    return c->dtype != GM_KERNEL_F64;
}
GM_TRANSFORM_KERNEL(mixed, mix)

/* What the call says: 8 numbers. */
static int tell(const gm_kernel_call *c)
{
    double *out = c->out;
    if (gm_kernel_out_elements(c) != 8 || c->out_ndim != 2) return 3;
    out[0] = (double)c->sample, out[1] = (double)c->epoch;
    out[2] = (double)(c->seed >> 32), out[3] = (double)(c->seed & 0xffffffff);
    out[4] = gm_kernel_uniform(c, 5);
    out[5] = (double)(c->shape[0] * 10000 + c->shape[1] * 100 + c->shape[2]);
    out[6] = c->n_parameters ? c->parameters[c->n_parameters - 1] : -1;
    out[7] = c->user ? ((const double *)c->user)[1] : -1;
    return 0;
}
GM_TRANSFORM_KERNEL(told, tell)

static int refuse(const gm_kernel_call *c)
{
    if (c->sample == (int64_t)c->parameters[0]) {
        if (c->n_parameters > 1) return (int)c->parameters[1];
        snprintf(c->error, GM_KERNEL_ERROR, "%d channels are too many", (int)c->shape[0]);
        return 1;
    }
    for (int64_t i = 0; i < gm_kernel_elements(c); i++) ((double *)c->out)[i] = ((const double *)c->in)[i];
    return 0;
}
GM_TRANSFORM_KERNEL(picky, refuse)

const gm_transform_kernel older = {GM_KERNEL_MAGIC, sizeof(gm_kernel_call) - 8, invert};
const gm_transform_kernel empty = {GM_KERNEL_MAGIC, sizeof(gm_kernel_call), 0};
int plain(const gm_kernel_call *c) { return invert(c); }
]]

local has_compiler = os.execute "command -v cc > /dev/null 2>&1" == 0
local world = core.world()
local uncut, cut = { "pipeline", world }, { "data", world }
local home, root, library
local N = 7
local function size(i) return 5 + i % 3, 4 + i % 2 end

if not has_compiler then
  describe("a transform in C", function()
    it("is compiled", function() pending "there is no compiler (cc): install gcc" end)
  end)
  return
end

setup(function()
  home = shell.temporary_folder()
  root = pictures.folder(shell.temporary_folder(), { a = 4, b = 3 }, size)
  shell.write(home .. "/mine.c", SOURCE)
  library = home .. "/libmine.so"
  local command = ("cc -O1 -Wall -Werror -shared -fPIC -I host/data %s/mine.c -o %s 2>&1"):format(home, library)
  assert.equal("", table.concat(shell.lines(command), "\n"))
end)
teardown(function()
  shell.remove(home)
  shell.remove(root)
end)
before_each(function() both.mesh(cut) end)

local function kernel(symbol, more)
  local t = { type = "NativeTransform", library = library, symbol = symbol }
  for key, value in pairs(more or {}) do t[key] = value end
  return t
end

-- x of the samples of an epoch by their numbers, as nested lists.
local function samples(transforms, more, epoch)
  local opt, list = { dataset = { type = "ImageFolder", root = root }, batch_size = 3, dtype = "f64", seed = 9,
    transforms = transforms, shuffle = true }, {}
  for key, value in pairs(more or {}) do opt[key] = value end
  local loader = data.loader(opt)
  local ok, why = pcall(function()
    gm.scope(function()
      loader:set_epoch(epoch or 0)
      for x in loader:batches() do
        local whole = core.gather(x):totable()
        for k, i in ipairs(loader:sample_numbers()) do list[i] = whole[k] end
      end
    end)
  end)
  loader:close()
  if not ok then error(why, 0) end
  return list
end

-- SplitMix64 as the header says it, from both halves of the seed.
local function uniform(high, low, i)
  local u64 = ffi.typeof "uint64_t"
  local z = u64(high) * 0x100000000ULL + u64(low) + u64(i + 1) * 0x9e3779b97f4a7c15ULL
  z = bit.bxor(z, bit.rshift(z, 30)) * 0xbf58476d1ce4e5b9ULL
  z = bit.bxor(z, bit.rshift(z, 27)) * 0x94d049bb133111ebULL
  return tonumber(bit.rshift(bit.bxor(z, bit.rshift(z, 31)), 11)) * 2 ^ -53
end

local crop = { type = "CenterCrop", size = { 4, 4 } }

describe("a transform in C", function()
  it("gets bytes and gives bytes, of pictures that differ in size", function()
    local list = samples { kernel("inverted", { dtype = "u8" }), crop }
    local plain = samples { crop }
    assert.equal(N, #list)
    for i = 1, N do -- 255 - b, less what the crop has put around a picture
      local h, w = size(i - 1)
      for c = 1, 3 do
        for y = 1, math.min(h, 4) do
          for x = 1, math.min(w, 4) do assert.near(1 - plain[i][c][y][x], list[i][c][y][x], 1e-15) end
        end
      end
    end
  end)

  it("gets numbers from 0 to 1, or those of Normalize, and its parameters", function()
    local plain = samples { crop }
    local mixed = samples { crop, kernel("mixed", { parameters = { 1 } }) }
    local tripled = samples { crop, kernel("mixed", { parameters = { 3 } }) }
    local normal = samples { crop, { type = "Normalize", mean = 0.5, std = 0.25 },
      kernel("mixed", { parameters = { 3 } }) }
    for i = 1, N do
      for y = 1, 4 do
        for x = 1, 4 do
          local noise, v = mixed[i][2][y][x] - plain[i][2][y][x], plain[i][2][y][x]
          assert.is_true(noise >= -1e-15 and noise < 1)
          assert.near(3 * v + noise, tripled[i][2][y][x], 1e-14)
          assert.near(3 * (v - 0.5) / 0.25 + noise, normal[i][2][y][x], 1e-14)
        end
      end
    end
  end)

  it("knows its sample, and its random numbers are a function of seed, place, epoch and sample", function()
    local user, told = ffi.new("double[2]", 4, 7.5), kernel("told", { shape = { 2, 4 }, parameters = { 1, 2.5 } })
    told.user = user
    local found, seen = samples({ told }, nil, 3), {}
    for i = 1, N do
      local sample, epoch, high, low = unpack(found[i][1])
      local h, w = size(i - 1)
      assert.same({ i - 1, 3 }, { sample, epoch })
      assert.equal(uniform(high, low, 5), found[i][2][1])
      assert.same({ 30000 + h * 100 + w, 2.5, 7.5 }, { found[i][2][2], found[i][2][3], found[i][2][4] })
      assert.is_nil(seen[high * 2 ^ 32 + low])
      seen[high * 2 ^ 32 + low] = true
    end
    local flip = { type = "RandomHorizontalFlip" }
    for _, other in ipairs { samples({ told }, nil, 4), samples({ told }, { seed = 10 }, 3),
                             samples({ flip, told }, nil, 3) } do
      for i = 1, N do assert.is_nil(seen[other[i][1][3] * 2 ^ 32 + other[i][1][4]]) end
    end
  end)

  it("makes the same samples on any ranks, threads and prefetch", function()
    local list = { kernel("inverted", { dtype = "u8" }), { type = "RandomResizedCrop", size = 5 },
      kernel("mixed", { parameters = { 2 } }) }
    both.mesh(uncut)
    local truth = samples(list, { prefetch = 0 }, 2)
    both.mesh(cut)
    for threads = 1, 4, 3 do
      for prefetch = 0, 2, 2 do
        assert.same(truth, samples(list, { threads = threads, prefetch = prefetch }, 2))
      end
    end
  end)

  it("is a kernel that FFI has found", function()
    pcall(ffi.cdef, "extern const gm_transform_kernel inverted; int plain(const struct gm_kernel_call *);")
    local mine = ffi.load(library)
    local by_ffi = { type = "NativeTransform", kernel = mine.inverted, dtype = "u8" }
    assert.same(samples { kernel("inverted", { dtype = "u8" }), crop }, samples { by_ffi, crop })
    local text = tostring(data.NativeTransform { kernel = mine.inverted })
    assert.matches("NativeTransform", text, 1, true)
    for _, wrong in ipairs { mine.plain, ffi.new "int[2]", ffi.cast("void *", 4096) } do
      assert.error_matches(function() data.NativeTransform { kernel = wrong } end,
        "kernel must be a gm_transform_kernel, which GM_TRANSFORM_KERNEL makes in C; got ctype<")
    end
  end)

  it("that fails names what failed, the sample and its file", function()
    local function why(transforms, more)
      local ok, err = pcall(samples, transforms, more)
      assert.is_false(ok)
      return failure.text(err)
    end
    both.mesh(uncut)
    local text = why { crop, kernel("picky", { parameters = { 4 } }) }
    assert.matches("/b/001.png (sample 5): transform 'picky': 3 channels are too many", text, 1, true)
    text = why({ crop, kernel("picky", { parameters = { 4, 9 } }) }, { threads = 3 })
    assert.matches("(sample 5): transform 'picky' returned 9", text, 1, true)
    text = why({ kernel("picky", { parameters = { 2 } }) },
      { dataset = { type = "Synthetic", length = 4, shape = { 1, 2, 2 }, classes = 2 } })
    assert.matches("^sample 3: transform 'picky': 1 channels", text)
  end)
end)

describe("a transform in C is refused", function()
  local function refused(transform, text, more)
    local list = more and { more, transform } or { transform, crop }
    local ok, why = pcall(samples, list)
    assert.is_false(ok)
    assert.matches(text, failure.text(why), 1, true)
  end

  it("if there is no such kernel", function()
    refused(kernel("inverse"), "has no transform kernel 'inverse'")
    refused(kernel("plain"), "no transform kernel (GM_TRANSFORM_KERNEL of transform_kernel.h makes")
    refused(kernel("older"), "was compiled with the header of another version")
    refused(kernel("empty"), "is none of a shared library")
    refused({ type = "NativeTransform", library = "no/such.so", symbol = "x" }, "cannot be loaded: no/such.so")
    refused({ type = "NativeTransform", library = "such.so", symbol = "x" }, "./such.so")
  end)

  it("if it lies in no shared library, as functions in Lua do", function()
    local run = ffi.cast("int (*)(const struct gm_kernel_call *)", function() return 0 end)
    finally(function() run:free() end)
    local mine = ffi.load(library)
    pcall(ffi.cdef, "extern const gm_transform_kernel inverted;")
    local own = ffi.new("gm_transform_kernel", mine.inverted.magic, mine.inverted.call_size, run)
    refused({ type = "NativeTransform", kernel = own }, "lies in no shared library")
  end)

  it("if its options are wrong", function()
    local function wrong(more, text)
      local t = kernel("mixed", more)
      assert.error_matches(function() samples { t, crop } end, text)
    end
    wrong({ shape = { 2, 0 } }, "shape%[2%] must be a whole number from 1; got 0")
    wrong({ shape = {} }, "shape is an empty list")
    wrong({ shape = { 1, 1, 1, 1, 1, 1, 1, 1, 1 } }, "shape has at most 8 numbers, not 9")
    wrong({ parameters = { 0 / 0 } }, "parameters%[1%] must be a number; got nan")
    wrong({ parameters = { scale = 3 } }, "a list has no field 'scale'")
    wrong({ dtype = "f32" }, "dtype")
    wrong({ user = ffi.new("int", 3) }, "user must be a pointer, an array or a struct; got ctype<int>")
    wrong({ symbl = "mixed" }, "did you mean 'symbol'")
    assert.error_matches(function() data.NativeTransform { library = library } end, "symbol, the name of the kernel")
    assert.error_matches(function()
      data.NativeTransform { library = library, symbol = "mixed", kernel = ffi.new "gm_transform_kernel" }
    end, "not both")
    refused(kernel("inverted", { dtype = "u8" }), "native transform needs bytes: put it before normalize",
      { type = "Normalize", mean = 0, std = 1 })
  end)
end)
