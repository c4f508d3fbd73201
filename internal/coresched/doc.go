// Package coresched gives threads core scheduling cookies: threads with one
// cookie may share a core's hyperthreads at a time, those of another may not.
// It keeps which cookie stands for which group, and decides nothing. Semantics:
// Documentation/admin-guide/hw-vuln/core-scheduling.rst of Linux 6.12.
package coresched
