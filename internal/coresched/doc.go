// Package coresched gives threads core scheduling cookies: threads with one cookie
// may share a core's hyperthreads at a time, those with another may not. It keeps
// which cookie belongs to which group, and decides nothing. Semantics:
// Documentation/admin-guide/hw-vuln/core-scheduling.rst of Linux 6.12.
package coresched
