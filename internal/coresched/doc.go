// Package coresched gives threads core scheduling cookies. Threads with the same cookie may run on the hyperthreads of
// one core at the same time; threads with different cookies may not. The package records the cookie of each group of
// threads, and its callers decide the groups. The kernel documentation describes cookies in
// Documentation/admin-guide/hw-vuln/core-scheduling.rst (Linux 6.12).
package coresched
