// Package term formats text for terminals: blocks of lines, colours and units. It also removes control sequences from
// text of other programs and users.
package term
