// Package faults makes calls on files and sockets fail. A Plan chooses the calls and their faults: kernel errors, short
// writes, broken connections and delays. The Plan counts the faults by call and kind. Only tests use this package.
package faults
