// Package faults has calls to files and sockets fail as a plan says: with the
// errors of a kernel, short writes, connections that break, and delays. It
// counts what it did by call and kind. Tests alone use it.
package faults
