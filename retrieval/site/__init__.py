"""An installation looked at from outside: is it well, and how much does it do."""
