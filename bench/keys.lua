-- A POST with a key: a new one each time, or one of a few that were used before.
-- The same work for every kind that is measured, so that wrk costs the same.
--   wrk -s keys.lua URL -- PREFIX [FEW]
local threads = 0

function setup(thread)
   thread:set("id", threads)
   threads = threads + 1
end

function init(arguments)
   prefix = arguments[1]
   few = tonumber(arguments[2] or "0")
   count = 0
end

function request()
   count = count + 1
   local key
   if few > 0 then
      key = prefix .. "-" .. (count % few)
   else
      key = prefix .. "-" .. id .. "-" .. count
   end
   return wrk.format("POST", nil, {["Idempotency-Key"] = key, ["Content-Type"] = "application/json"},
                     '{"amount":1000,"currency":"EUR"}')
end
