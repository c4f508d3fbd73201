// Package nriadjust applies the adjustment of an NRI plugin to an OCI spec. It is our
// own and not the NRI library's generate package, which loses memory settings but the
// limit, repeats rlimits, and lets map order decide between setting and removing an
// annotation.
//
// It does no I/O and resolves no names: classes of block I/O and RDT, and CDI devices,
// are returned by name as what it left out. Formats: NRI 0.12 (pkg/api/api.proto) and
// the OCI runtime spec 1.3.
package nriadjust
