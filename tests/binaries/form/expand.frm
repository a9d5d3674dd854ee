* Expands a power in parallel, and checks that the difference of its two forms vanishes.
Off statistics;
Symbols a, b, c, d;
Local result = (a + b)^6 * (a - b)^6;
Local check = (a + b + c + d)^14 - ((a + b)^2 + 2*(a + b)*(c + d) + (c + d)^2)^7;
Print;
.end
