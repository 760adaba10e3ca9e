-- PrometheusHook { port = n }: what the port of a running job answers, to whom, and what it refuses.
local core = require "ganymede.core"
local shell = require "spec.support.shell"
local support = require "spec.faults.support"

-- Training that stops in the middle of a step when somebody makes the file `hang`, and ends when `stop` is there.
local recipe = support.training [[
  core.sleep(0.01)
  while io.open "hang" do core.sleep(0.05) end
  if trainer.step == 2 then assert(io.open("ready", "w")):close() end
  if io.open "stop" then trainer:stop() end
]]

local function start(hook)
  local body = recipe:gsub("hooks = { ", "hooks = { " .. hook .. ", ")
  local job = support.start(body, { "--out", "run", "--set", "epochs=100000" }, "%s run recipe.lua")
  job:file "ready"
  return job, tonumber(support.read(job.home .. "/err"):match "http://127%.0%.0%.1:(%d+)/metrics")
end

-- Sends bytes (a format of printf) and reads until the end -> the answer.
local function ask(port, bytes)
  return shell.run(([[timeout 20 bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; printf "%s" >&3; cat <&3']]):format(port,
    bytes)).out
end

local function metrics(port)
  local head, body = ask(port, [[GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n]]):match "^(.-\r\n)\r\n(.*)$"
  return head or "", body or ""
end

local function steps(port) return tonumber(select(2, metrics(port)):match "\nganymede_steps_total{[^}]*} (%d+)\n") end

describe("the port of PrometheusHook", function()
  local job, port
  setup(function() job, port = start '{ type = "PrometheusHook", port = 0, seconds = 0.1 }' end)

  it("answers on this machine alone, with what the file would have", function()
    assert.is_truthy(port, support.read(job.home .. "/err"))
    local head, body = metrics(port)
    assert.is_truthy(head:find "^HTTP/1.1 200 OK\r\n")
    assert.is_truthy(head:find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n", 1, true), head)
    assert.equal(#body, tonumber(head:match "Content%-Length: (%d+)"))
    assert.is_truthy(body:find('ganymede_running{run="points"} 1\n', 1, true), body)
    if shell.run("command -v promtool").code == 0 then
      shell.write(job.home .. "/body", body)
      assert.equal(0, shell.run("promtool check metrics <" .. job.home .. "/body").code)
    end
    assert.is_nil(io.open(job.home .. "/run/metrics.prom"))
    assert.same({ "0100007F" }, shell.lines(("awk '$2 ~ /:%04X$/ && $4 == \"0A\" { print substr($2, 1, 8) }' "
      .. "/proc/net/tcp"):format(port)))
    local first, deadline = steps(port), core.now() + shell.PATIENCE
    assert.is_truthy(first)
    while steps(port) == first and core.now() < deadline do core.sleep(0.05) end
    assert.is_true(steps(port) > first)
  end)

  it("refuses other paths, methods and foreign protocols", function()
    for request, status in pairs {
      [ [[GET / HTTP/1.1\r\n\r\n]] ] = "404 Not Found", [ [[GET /metricsx HTTP/1.1\r\n\r\n]] ] = "404 Not Found",
      [ [[GET /metrics?x=1 HTTP/1.0\n\n]] ] = "200 OK",
      [ [[POST /metrics HTTP/1.1\r\n\r\n]] ] = "405 Method Not Allowed",
      [ [[EHLO mail\r\n\r\n]] ] = "400 Bad Request", [ [[GET /metrics GOPHER/1\r\n\r\n]] ] = "400 Bad Request",
    } do
      assert.equal("HTTP/1.1 " .. status .. "\r\n", ask(port, request):match "^.-\n", request)
    end
    assert.equal("", ask(port, [[\026\003\001 x HTTP/1.1\r\n\r\n]])) -- as TLS begins: closed without a word
    local head = ask(port, [[HEAD /metrics HTTP/1.1\r\n\r\n]])
    assert.is_truthy(head:find "^HTTP/1.1 200 OK\r\n" and head:find "\r\n\r\n$")
    local long = shell.run(([[timeout 20 bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; (printf "GET /metrics HTTP/1.1\r\nX: ";
      head -c 10000 /dev/zero | tr "\\0" x) >&3 2>/dev/null; cat <&3']]):format(port)).out
    assert.equal("HTTP/1.1 431 Request Header Fields Too Large\r\n", long:match "^.-\n")
  end)

  it("is not kept by connections that say nothing, or half a request", function()
    local idle = {}
    for i = 1, 10 do
      idle[i] = ([[exec %d<>/dev/tcp/127.0.0.1/%d; printf "GET /met" >&%d]]):format(10 + i, port, 10 + i)
    end
    local began = core.now()
    local result = shell.run(([[timeout 40 bash -c '%s; exec 3<>/dev/tcp/127.0.0.1/%d;
      printf "GET /metrics HTTP/1.1\r\n\r\n" >&3; cat <&3']]):format(table.concat(idle, "; "), port))
    assert.is_truthy(result.out:find "^HTTP/1.1 200 OK", result.out .. result.err)
    assert.is_true(core.now() - began > 3) -- it had to wait for their end, and nobody ended them
  end)

  it("answers while a step hangs, and no more after the end", function()
    shell.write(job.home .. "/hang", "")
    local deadline, before = core.now() + shell.PATIENCE, steps(port)
    repeat
      local now = steps(port)
      local same = now == before
      before = now
      core.sleep(0.3)
    until same or core.now() > deadline
    assert.equal(before, steps(port))
    shell.write(job.home .. "/stop", "")
    os.remove(job.home .. "/hang")
    local result = job:finish()
    assert.equal(0, result.code, result.err)
    assert.equal("", ask(port, [[GET /metrics HTTP/1.1\r\n\r\n]]))
  end)
end)

it("a port that is taken ends the run before its first step", function()
  local server = core.text_server(0, "/metrics", "text/plain")
  finally(function() server:close() end)
  local home = support.home((recipe:gsub("hooks = { ", "hooks = { { type = 'PrometheusHook', port = "
    .. server:port() .. " }, ")))
  finally(function() shell.remove(home) end)
  local result = support.run_in(home, { "--out", "run" }, 1)
  assert.equal(2, result.code, result.err)
  assert.is_truthy(result.err:find(("cannot listen at 127.0.0.1:%d"):format(server:port()), 1, true), result.err)
  assert.is_nil(io.open(home .. "/ready"))
end)
