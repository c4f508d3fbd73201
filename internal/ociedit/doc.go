// Package ociedit writes, reads and applies decision files. A decision file has the changes to the config.json of one
// container for which the CRI has no field. The agent decides about these changes and writes the file. The OCI runtime
// wrapper trimtab-oci reads the file and edits the bundle. Apart from package trust, the package imports only the
// standard library, so that the wrapper stays small.
package ociedit
