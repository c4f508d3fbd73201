// Package crowd benchmarks attachments with the embedded runtime and up to a thousand pods: how long they take to list
// all containers, and how much CPU time they use on an idle node. It only asserts that all list the same containers.
package crowd
