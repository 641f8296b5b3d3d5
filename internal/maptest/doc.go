// Package maptest keeps the map of the repository true. It has no code, only tests, which read every Go file:
//
//   - a room (watcher, bus, projector, xdsserver) imports only what the import table gives it, never another room;
//   - internal/endpoint, and each file whose first line begins "// Pure", knows no context, clock, log, randomness or I/O;
//   - a file has at most 400 lines and a function at most 60, generated code and tests aside.
//
// The linter checks most of this too; these tests need nothing but the go command, and cover nested modules.
package maptest
