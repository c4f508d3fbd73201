// Package nri attaches Trimtab to a container runtime as an NRI plugin. It has one connection to one runtime. An
// external plugin dials the runtime's socket, and the runtime starts the process of a launched plugin. The package
// converts NRI messages to lifecycle types, and decided values to adjustments and updates. Its capabilities say which
// fields NRI can carry.
//
// The package decides nothing and stores no state of pods or containers. An error of this package never fails a
// pod: only a conductor.Rejection fails a request.
package nri
