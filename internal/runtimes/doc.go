// Package runtimes has a table of the values that container runtimes do not accept from Trimtab: values that they
// refuse, so that the request fails, and values that they drop without an error. Each row has its source. The package
// sends nothing, and does not use the message types of NRI or the CRI.
package runtimes
