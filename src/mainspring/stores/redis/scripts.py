"""What a record is in Redis, as the scripts that read and write it. Each runs as one step of the server.

The value is the string at `collection:key`. Beside it a hash holds the version, the expiry, the digest of the value
that was written, and the collection. That makes a plain write by another program visible: a string without a hash is
a record of version 1, and a string that does not match the digest is the next version. Whoever reads such a record
writes the hash, so that from then on compare-and-set protects what was seen. The string of another collection (`a` and
`a:b` can meet in one name), or a key that holds no string, is not a record and is left alone. If the other program has
the string expire, so does the record.

The caller's `now` decides whether a record has expired. The server's own expiry only removes what is past: at that
instant if it is still to come by the server's clock, and otherwise an hour later.
"""

from __future__ import annotations

from typing import Final

GARBAGE_MS: Final = 3_600_000

# `record` returns the version, the value and the expiry; version '0' is an absent record, '-1' is not one of ours.
# Versions are texts throughout: the numbers of a script hold 53 bits, and versions have more.
_RECORD: Final = """
local function record(value_key, hash_key, index_key, collection, member, now)
  local value = redis.pcall('GET', value_key)
  if type(value) == 'table' then return '-1' end
  local kept = redis.call('HMGET', hash_key, 'version', 'expires_at', 'digest', 'collection')
  if not value then return '0' end
  if kept[4] and kept[4] ~= collection then return '-1' end
  local version, expires_at, digest = kept[1] or '0', kept[2], redis.sha1hex(value)
  if kept[3] ~= digest then
    redis.call('DEL', hash_key)
    redis.call('HSET', hash_key, 'version', version, 'digest', digest, 'collection', collection)
    redis.call('HINCRBY', hash_key, 'version', 1)
    version, expires_at = redis.call('HGET', hash_key, 'version'), false
    local left = redis.call('PTTL', value_key)
    if left > 0 then
      expires_at = string.format('%.0f', now + left)
      redis.call('HSET', hash_key, 'expires_at', expires_at)
      redis.call('PEXPIRE', hash_key, left)
    end
    if index_key ~= '' then redis.call('ZADD', index_key, 0, member) end
  end
  if expires_at and tonumber(expires_at) <= tonumber(now) then return '0' end
  return version, value, expires_at
end
"""

# KEYS: value, hash, index. ARGV: collection, key, now. An index named '' means that the collection is not listed.
GET: Final = (
    _RECORD
    + """
local version, value, expires_at = record(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3])
if version == '0' or version == '-1' then return false end
return {version, value, expires_at}
"""
)

# More ARGV: expected version, value, expiry or '', version to be written. Returns 1 if it was.
PUT: Final = (
    _RECORD
    + f"""
if record(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]) ~= ARGV[4] then return 0 end
redis.call('SET', KEYS[1], ARGV[5])
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[2], 'version', ARGV[7], 'digest', redis.sha1hex(ARGV[5]), 'collection', ARGV[1])
if KEYS[3] ~= '' then redis.call('ZADD', KEYS[3], 0, ARGV[2]) end
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[2], 'expires_at', ARGV[6])
  local time = redis.call('TIME')
  local ahead = tonumber(ARGV[6]) > time[1] * 1000 + time[2] / 1000
  for _, key in ipairs({{KEYS[1], KEYS[2]}}) do
    if ahead then redis.call('PEXPIREAT', key, ARGV[6]) else redis.call('PEXPIRE', key, {GARBAGE_MS}) end
  end
end
return 1
"""
)

# More ARGV: expected version, at least 1. Returns 1 if it was removed.
DELETE: Final = (
    _RECORD
    + """
if record(KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]) ~= ARGV[4] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
if KEYS[3] ~= '' then redis.call('ZREM', KEYS[3], ARGV[2]) end
return 1
"""
)

# KEYS: prefix of values, prefix of hashes, index. ARGV: collection, now, lower bound, how many keys to look at.
# Returns the last key that was looked at, or nothing at the end, and the live records among them.
SCAN: Final = (
    _RECORD
    + """
local members = redis.call('ZRANGEBYLEX', KEYS[3], ARGV[3], '+', 'LIMIT', 0, ARGV[4])
local found = {}
for _, member in ipairs(members) do
  local version, value, expires_at = record(KEYS[1] .. member, KEYS[2] .. member, KEYS[3], ARGV[1], member, ARGV[2])
  if version ~= '0' and version ~= '-1' then
    found[#found + 1] = {member, version, value, expires_at}
  elseif redis.call('EXISTS', KEYS[1] .. member) == 0 then
    redis.call('ZREM', KEYS[3], member)
    redis.call('DEL', KEYS[2] .. member)
  end
end
return {members[#members] or false, found}
"""
)

# KEYS as in SCAN. ARGV: collection, now, then the keys of strings that may be new records. They enter the index.
ADOPT: Final = (
    _RECORD
    + """
for n = 3, #ARGV do
  if not redis.call('ZSCORE', KEYS[3], ARGV[n]) then
    record(KEYS[1] .. ARGV[n], KEYS[2] .. ARGV[n], KEYS[3], ARGV[1], ARGV[n], ARGV[2])
  end
end
return 0
"""
)
