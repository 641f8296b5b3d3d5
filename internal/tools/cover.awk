# Statement coverage per file of the pure core and per package, from a merged Go cover profile.
# A block that several test binaries saw counts once, as covered if any of them ran it.
FNR == 1 { next }
{
  if (!($1 in stmts)) stmts[$1] = $2
  if ($3 > 0) hit[$1] = 1
}
END {
  for (block in stmts) {
    file = block
    sub(/:[^:]*$/, "", file)
    sub(/^github.com\/slicecast\/slicecast\//, "", file)
    room = file
    sub(/\/[^\/]*$/, "", room)
    total[room] += stmts[block]; total[file] += stmts[block]
    if (block in hit) { got[room] += stmts[block]; got[file] += stmts[block] }
  }
  for (name in total)
    printf "%6.1f %% of %5d statements  %s\n", 100 * got[name] / total[name], total[name], name | "sort -k6"
}
