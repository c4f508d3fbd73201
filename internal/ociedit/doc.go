// Package ociedit writes, reads and applies decision files. A decision file says what to change in the config.json of
// an OCI container that no field of the CRI can carry. The agent writes these files. The OCI runtime wrapper
// trimtab-oci reads them and edits the bundle. Apart from package trust, the package imports only the standard library,
// so that the wrapper stays small. It decides nothing.
package ociedit
