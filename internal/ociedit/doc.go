// Package ociedit owns decision files: what to change in an OCI container's
// config.json that no field of the CRI can carry. The agent writes them, and the OCI
// runtime wrapper trimtab-oci reads them and edits the bundle. It imports the standard
// library alone, so that the wrapper stays small, and decides nothing.
package ociedit
