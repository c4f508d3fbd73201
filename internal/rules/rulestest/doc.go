// Package rulestest runs test cases against the administrator's rules. A case has a pod, and what the rules must
// match, set and refuse for one of its containers. The package reads no file, and places no container.
package rulestest
