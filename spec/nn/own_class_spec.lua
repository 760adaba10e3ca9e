--- Modules of one's own: what is missing in a class, or has the name that another library gives it, is said.
local assert = require "luassert"
local gm = require "ganymede"
local nn = gm.nn

describe("a class of one's own", function()
  for _, name in ipairs { "init", "__init__", "constructor" } do
    it("is told that nothing calls its method " .. name, function()
      local class = nn.class("Own", nil, false)
      class[name] = function(self) self.layer = nn.Linear(2, 2) end
      assert.error_matches(function()
        local own = class {}
        return own
      end,
        "^Own has a method '" .. name .. "', which nothing calls: name it 'build'")
    end)
  end

  it("may call a method of its own setup or initialize", function()
    local class = nn.class("Own", nil, false)
    function class.setup(self, n) self.size = n end
    function class:forward(x)
      self:setup(x:size(1))
      return x
    end
    local own = class {}
    own(gm.zeros { 2 })
    assert.equal(2, own.size)
  end)

  it("may have such a method beside build, its own or its base's", function()
    local base = nn.class("Base", nil, false)
    function base:build()
      self.layer = nn.Linear(2, 2)
      self:init()
    end
    function base.init(self) self.kept = 3 end
    local class = nn.class("Derived", base, false)
    function class.init(self) self.kept = 5 end
    assert.equal(3, base {}.kept)
    assert.equal(5, class {}.kept)
  end)

  it("is told how forward is written where it has none", function()
    local class = nn.class("Own", nil, false)
    function class:call(x) return x end
    local own = class {}
    assert.error_matches(function() return own(gm.zeros { 2 }) end,
      "Own has no forward: write Own:forward%(x%), or sections")
  end)

  local function refused(build, words)
    local class = nn.class("Own", nil, false)
    class.build = build
    assert.error_matches(function()
      local own = class {}
      return own
    end, words)
  end

  it("is told of modules in a plain table, whose parameters nobody would train", function()
    refused(function(self) self.layers = { nn.Linear(2, 2), nn.Linear(2, 2) } end,
      "the field 'layers' holds Linear at 1 in a plain table.*self.layers = gm.nn.ModuleList")
    refused(function(self) self.parts = { first = nn.Linear(2, 2) } end,
      "the field 'parts' holds Linear in a plain table")
  end)

  it("may have tables of modules that are its parts otherwise", function()
    local class = nn.class("Own", nil, false)
    function class:build()
      self.list = nn.ModuleList { nn.Linear(2, 2), nn.Linear(2, 2) }
      self.last, self.sizes = { self.list[2], self.list }, { 2, 2 }
    end
    assert.equal(4, #class({}):parameters())
  end)

  it("is told what a parameter needs", function()
    refused(function(self) self:param("w", { 2, 2 }) end,
      "parameter 'w' needs an initializer, such as gm.nn.init.normal.*got nothing")
    refused(function(self) self:param("w", gm.ones { 2 }) end, "parameter 'w' needs a shape, a list of sizes; got a "
      .. "tensor; the numbers of a tensor come in by an assignment, self.w = t")
    refused(function(self) self:param "w" end, "parameter 'w' needs a shape, a list of sizes; got nothing")
  end)

  describe("is told of what its forward makes", function()
    local function refused_call(forward, words)
      local class = nn.class("Own", nil, false)
      function class:build() self.inner = nn.Identity() end
      function class:forward(x)
        self.inner(x)
        return forward(self, x)
      end
      local outer = nn.Sequential { nn.Linear(2, 2), class {} }
      local before = outer:count()
      for _ = 1, 2 do -- what was refused leaves nothing behind
        local ok, err = pcall(outer, gm.zeros { 1, 2 })
        assert.is_false(ok)
        assert.is_truthy(err:find(words, 1, true), err)
        assert.matches("own_class_spec.lua:%d+: ", err)
        assert.matches("\n  in 2: Own\n", err .. "\n")
        assert.equal(before, outer:count())
      end
    end
    local late = " is made while forward runs: nobody would train it"

    it("a layer, wherever it is kept", function()
      local kept
      refused_call(function(self, x)
        self.late = self.late or nn.Linear(2, 2)
        return self.late(x)
      end, "Linear { inputs = 2, outputs = 2 }" .. late)
      refused_call(function(self, x)
        self.list = self.list or { nn.Linear(2, 2) }
        return self.list[1](x)
      end, "Linear { inputs = 2, outputs = 2 }" .. late)
      refused_call(function(_, x)
        kept = kept or nn.Sequential { nn.Linear(2, 3), nn.Linear(3, 2) }
        return kept(x)
      end, "Linear { inputs = 2, outputs = 3 }" .. late)
    end)

    it("a layer made elsewhere, and a parameter", function()
      local other = nn.Sequential { nn.Linear(2, 2) }
      refused_call(function(self, x)
        self.late = other
        return self.late(x)
      end, other:describe() .. late)
      refused_call(function(self, x)
        self:param("w", { 2 }, nn.init.ones()(2))
        return x * self.w
      end, "the parameter 'w'" .. late)
    end)

    it("but not of layers without parameters, models beside it, and what is made after an error", function()
      local teacher, class = nn.Linear(2, 2), nn.class("Own", nil, false)
      function class:forward(x)
        self.relu = self.relu or nn.ReLU()
        if x:size(1) == 3 then error "three" end
        return self.relu(x) + teacher(x)
      end
      local own = class {}
      own(gm.zeros { 1, 2 })
      assert.error_matches(function() own(gm.zeros { 3, 2 }) end, "three")
      own.layer = nn.Linear(2, 2)
      assert.equal(1, #own:children() - 1)
    end)
  end)

  it("is told what an option is", function()
    local class = nn.class("Own", nil, false)
    class.options = { size = 3 }
    assert.error_matches(function() class { size = 3 } end,
      "Own: the option 'size' is declared as 3; write a table such as { type")
  end)

  it("is told what is wrong with its sections where it runs, also without stages", function()
    for words, found in pairs { ["its `sections` must return a list"] = 3, ["a list, not an empty one"] = {},
      ["its section 2 must be a table { modules = list, forward = function }"] = "no forward" } do
      local class = nn.class("Own", nil, false)
      function class:build() self.first, self.last = nn.Linear(2, 2), nn.Linear(2, 2) end
      function class:sections()
        if found ~= "no forward" then return found end
        return { { modules = { self.first }, forward = self.first }, { modules = { self.last } } }
      end
      local own = class {}
      assert.error_matches(function() own(gm.zeros { 1, 2 }) end, words)
    end
  end)
end)
