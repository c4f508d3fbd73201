// Package crowd benchmarks attachments beside the embedded runtime with up to a
// thousand pods: how long they take to know all that runs, and what they cost
// when nothing happens. Nothing is asserted but that all know the same.
package crowd
