// Package nriadjust applies the adjustment of an NRI plugin to an OCI spec. It replaces the NRI library's package
// generate, which loses all memory settings except the limit, adds an rlimit again instead of replacing it, and lets
// the order of a map decide whether an annotation is set or removed.
//
// The package does no I/O, so it cannot look up what a name of a class or CDI device stands for. It does not apply
// block I/O classes, RDT classes, CDI devices and limits of kernel memory, but returns the names of these fields. The
// formats are those of NRI 0.12 (pkg/api/api.proto) and of the OCI runtime spec 1.3.
package nriadjust
