"""What clients do: for each service, how an operation of the plan is carried out and written down."""
