// Package term makes text for terminals: blocks of lines side by side, colour,
// and foreign text that cannot command the terminal.
package term
