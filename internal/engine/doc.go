// Package engine decides: from the state of the node, one event and the facts
// gathered for it, it makes a plan. It is pure: no I/O, no clock, no log; equal
// input gives equal output. State changes only by committing a plan.
package engine
