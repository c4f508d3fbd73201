// Package rulestest plays cases against the administrator's rules: a pod goes in, and
// what rules set, match and refuse for one of its containers comes out and is compared. It
// reads no file, and places no container.
package rulestest
