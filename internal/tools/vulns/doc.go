// Command vulns judges what govulncheck found. It reads the output of `govulncheck -format json` on standard input:
//
//   - a vulnerability of a module that our code calls fails (exit 1): the fix is a commit here;
//   - one of the Go standard library is a warning: whether it is there depends on the Go that builds, not on the commit,
//     and it is gone with a newer patch release, which the warning names;
//   - one that our code does not call is counted.
//
// Anything but a complete report (no scan, broken JSON) is an error (exit 2), so that silence never passes for safety.
package main
