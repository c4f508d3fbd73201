// Package nri attaches Trimtab to a container runtime as an NRI plugin. It has one connection to one runtime. An
// external plugin dials the runtime's socket. The runtime starts the process of a launched plugin, and passes a
// connection to it. The package converts NRI messages to lifecycle types, and decided values to NRI's adjustments and
// updates. Attachment.Capabilities says which fields the connected runtime applies.
//
// The package decides nothing and stores no state of pods or containers. An error of this package never fails a
// pod: only a conductor.Rejection fails a request.
package nri
