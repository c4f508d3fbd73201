// Package ociedit owns decision files. They say what to change in an OCI container's config.json that no field of
// the CRI can carry. The agent writes them. The OCI runtime wrapper trimtab-oci reads them and edits the bundle.
// The package imports only the standard library, so that the wrapper stays small, and it decides nothing.
package ociedit
