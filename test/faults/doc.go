// Package faults makes calls on files and sockets fail by a plan: with kernel errors, short writes, broken connections
// and delays. It counts the faults by call and kind. Only tests use it.
package faults
