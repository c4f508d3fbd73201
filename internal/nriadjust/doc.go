// Package nriadjust applies the adjustment of an NRI plugin to an OCI spec. We do not use the NRI library's package
// generate for three reasons: it loses memory settings except the limit, repeats rlimits, and lets the order of a
// map decide between setting and removing an annotation.
//
// The package does no I/O and resolves no names. It does not apply block I/O classes, RDT classes, CDI devices and
// limits of kernel memory, and returns the names of these fields. Formats: NRI 0.12 (pkg/api/api.proto) and the OCI
// runtime spec 1.3.
package nriadjust
