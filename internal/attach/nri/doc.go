// Package nri attaches Trimtab to a container runtime as an NRI plugin: one
// connection to one runtime, external (it dials the runtime's socket) or
// launched (the runtime started the process). It translates NRI messages into
// lifecycle types and decided values back into adjustments and updates, and
// declares which fields NRI can carry.
//
// The package decides nothing and keeps no state of pods or containers. A fault
// of its own never fails a pod: only a conductor.Rejection fails a request.
package nri
