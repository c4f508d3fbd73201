// Package crowd benchmarks attachments with the embedded runtime and up to a thousand pods: how long an attachment
// takes to list all containers, and how much CPU time it uses on an idle node. The only assertion of the package is
// that all attachments list the same containers.
package crowd
