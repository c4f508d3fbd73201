// Package lifetimes has pods come and go by the ten thousand, in every order in which
// their ends can be reported, and looks at what is kept in memory afterwards: nothing
// may be.
package lifetimes
