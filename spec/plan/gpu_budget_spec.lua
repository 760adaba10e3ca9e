--- spec/bench/gpu_budget.lua counts the step that a GPU makes: the loss and its gradient are one pass over the logits.
-- sanitizers: no, other files run the same lines of C (docs/testing.md)
local assert = require "luassert"
local run_host = require "spec.support.run_host"

describe("the budget of a step of GPT-2 on a GPU", function()
  it("has one pass over the logits, of all tokens and words", function()
    local result = run_host { "check", GANYMEDE_ROOT .. "/spec/bench/gpu_budget.lua" }
    assert.equal(0, result.code, result.err)
    local rows = {}
    for name, calls, gigabytes in result.out:gmatch "| ([%w_]+) | (%d+) | %d+ | %d+ | ([%d.]+) |" do
      rows[name] = { calls = tonumber(calls), gigabytes = tonumber(gigabytes) }
    end
    assert.is_nil(rows.cross_entropy)
    assert.is_nil(rows.cross_entropy_grad)
    assert.equal(1, rows.cross_entropy_both.calls)
    -- logits read and gradients written, of 2 bytes each; the table has one digit
    assert.near(2 * 2 * 64 * 1024 * 50257 / 1e9, rows.cross_entropy_both.gigabytes, 0.06)
    assert.equal(12, rows.attention.calls)
  end)
end)
