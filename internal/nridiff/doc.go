// Package nridiff shows what NRI plugins change in the containers that are created: it
// registers observers before, between and after them, and compares what each observer is
// shown. It changes nothing itself.
package nridiff
