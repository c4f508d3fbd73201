// Package nridiff shows what NRI plugins change in new containers. It registers observers before, between and after
// the plugins, and compares the containers that the observers see. It changes nothing itself.
package nridiff
